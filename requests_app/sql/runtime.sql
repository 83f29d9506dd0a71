-- Runtime settings (design 5.3.5, 5.3.6): what differs from the defaults, and who changed it.

-- name: load_settings
SELECT name, value FROM runtime_setting;

-- name: lock_settings
-- One change at a time, so that rules over two parameters are judged on what will stand beside each other.
LOCK TABLE runtime_setting IN SHARE ROW EXCLUSIVE MODE;

-- name: store_change
-- A null value takes the parameter back to its default. The history row comes with the change or not at all.
WITH removed AS (
  DELETE FROM runtime_setting WHERE name = %(name)s AND %(after)s::jsonb IS NULL),
 kept AS (
  INSERT INTO runtime_setting (name, value, updated_by) SELECT %(name)s, %(after)s::jsonb, %(by)s WHERE %(after)s::jsonb IS NOT NULL
  ON CONFLICT (name) DO UPDATE SET value = excluded.value, updated_by = excluded.updated_by, updated_at = clock_timestamp())
INSERT INTO runtime_change (name, before, after, changed_by, reason)
VALUES (%(name)s, %(before)s::jsonb, %(after)s::jsonb, %(by)s, %(reason)s);

-- name: history
SELECT id, name, before, after, changed_by, reason, at FROM runtime_change
 WHERE %(name)s::text IS NULL OR name = %(name)s::text ORDER BY id DESC LIMIT %(limit)s;
