-- Tries to log in to the desk. One row a count: of an address, and of a name at an address. A count opens with its first try and is over
-- a window later, by the database's clock, so that all web processes count as one.

-- name: wait_of
SELECT coalesce(max(ceil(extract(epoch FROM c.opened_at + make_interval(secs => %(window)s) - now.at))), 0)::int AS seconds
  FROM desk_login_count c, (SELECT clock_timestamp() AS at) now
 WHERE c.opened_at > now.at - make_interval(secs => %(window)s)
   AND (c.key = %(address)s AND c.tries >= %(per_address)s OR c.key = %(person)s AND c.tries >= %(per_person)s);

-- Counted before the password is looked at: of many tries at once only as many get through as one after the other would. The address
-- comes first, always: two tries never wait for each other, and names without end make no rows once their address is refused.
-- name: count_try
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at, make_interval(secs => %(window)s) AS span),
over AS (
  SELECT key FROM desk_login_count, clock
   WHERE opened_at <= clock.at - clock.span AND key NOT IN (%(address)s, %(person)s)
   ORDER BY opened_at LIMIT 100 FOR UPDATE OF desk_login_count SKIP LOCKED),
swept AS (DELETE FROM desk_login_count c USING over WHERE c.key = over.key),
address AS (
  INSERT INTO desk_login_count AS c (key, opened_at, tries) SELECT %(address)s, clock.at, 1 FROM clock
  ON CONFLICT (key) DO UPDATE
    SET opened_at = CASE WHEN c.opened_at > excluded.opened_at - make_interval(secs => %(window)s) THEN c.opened_at ELSE excluded.opened_at END,
        tries = CASE WHEN c.opened_at > excluded.opened_at - make_interval(secs => %(window)s) THEN c.tries + 1 ELSE 1 END
  RETURNING opened_at, tries),
person AS (
  INSERT INTO desk_login_count AS c (key, opened_at, tries)
  SELECT %(person)s, clock.at, 1 FROM clock, address WHERE address.tries <= %(per_address)s
  ON CONFLICT (key) DO UPDATE
    SET opened_at = CASE WHEN c.opened_at > excluded.opened_at - make_interval(secs => %(window)s) THEN c.opened_at ELSE excluded.opened_at END,
        tries = CASE WHEN c.opened_at > excluded.opened_at - make_interval(secs => %(window)s) THEN c.tries + 1 ELSE 1 END
  RETURNING opened_at, tries)
SELECT coalesce(max(greatest(1, ceil(extract(epoch FROM refused.opened_at + clock.span - clock.at)))), 0)::int AS seconds
  FROM clock, (SELECT opened_at FROM address WHERE tries > %(per_address)s
               UNION ALL SELECT opened_at FROM person WHERE tries > %(per_person)s) refused;

-- Two statements, and not one: in one the order of their locks would be the planner's.
-- name: forget_person
DELETE FROM desk_login_count WHERE key = %(person)s;

-- name: take_back_try
UPDATE desk_login_count SET tries = tries - 1 WHERE key = %(address)s AND tries > 0;
