-- A database for one run of an example, with a clock of its own. `{database}` is a name that the code made, never input.

-- name: create_database
CREATE DATABASE {database};

-- name: drop_database
DROP DATABASE IF EXISTS {database} WITH (FORCE);

-- name: create_clock_schema
CREATE SCHEMA IF NOT EXISTS injected;

-- name: create_clock
-- Reads the session's moment; every statement that writes clock_timestamp() finds it before the one of pg_catalog.
CREATE OR REPLACE FUNCTION injected.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
  AS $$ SELECT current_setting('injected.moment')::timestamptz $$;

-- name: follow_clock
SET search_path = injected, public, pg_catalog;

-- name: set_clock
SELECT set_config('injected.moment', %(moment)s::timestamptz::text, false);
