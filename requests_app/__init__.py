"""The domain of the gateway relayer and its two faces: the HTTP API and the admin desk."""
