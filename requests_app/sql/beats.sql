-- Signs of life of loops and processes (design 3.1: the watchdog; engine_spike 1.3).

-- name: write_beat
-- `at` is written by the beat thread, `turn_at` is when the loop itself last came round: a thread can outlive its loop.
INSERT INTO worker_beat (resource, instance, at, turn_at, pid, host)
VALUES (%(resource)s, %(instance)s, clock_timestamp(),
        clock_timestamp() - make_interval(secs => %(turn_age)s::float8), %(pid)s, %(host)s)
    ON CONFLICT (resource) DO UPDATE
   SET instance = EXCLUDED.instance, at = EXCLUDED.at, turn_at = EXCLUDED.turn_at, pid = EXCLUDED.pid, host = EXCLUDED.host;

-- name: beat_and_look
-- The watchdog's own beat, and those of the loops it looks after. The lease's epoch comes along so that a replacement can be sent once an epoch.
WITH own AS ({write_beat})
SELECT a.resource,
       extract(epoch FROM clock_timestamp() - b.at)::float8 AS age_seconds,
       extract(epoch FROM b.at - b.turn_at)::float8 AS stuck_seconds,
       coalesce(l.epoch, 0) AS epoch
  FROM unnest(%(resources)s::text[]) AS a(resource)
  LEFT JOIN worker_beat b ON b.resource = a.resource
  LEFT JOIN exec_lease l ON l.resource = a.resource
 ORDER BY a.resource;

-- name: forget_beats
DELETE FROM worker_beat WHERE resource = ANY(%(resources)s::text[]);

-- name: forget_silent
-- duties/retention: what was killed and never came back under its name, such as a container with a host name of its own.
DELETE FROM worker_beat WHERE at < clock_timestamp() - make_interval(secs => %(seconds)s::float8);
