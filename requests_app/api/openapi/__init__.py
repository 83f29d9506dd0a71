"""The OpenAPI document: components, per-route decorators, and the generator run."""
