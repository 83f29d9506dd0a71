"""What has to happen by the clock, each in one module with `run(context, lease) -> items handled` and `INTERVAL` in seconds."""
