-- Bands of the envelope log beside their making: misses, sizes, retirement (design 5.4.2; reference/envelopes.md 6.3).

-- name: note_missing
INSERT INTO envelope_miss AS m (source_id, misses, last_at) VALUES (%(source)s, 1, clock_timestamp())
ON CONFLICT (source_id) DO UPDATE SET misses = m.misses + 1, last_at = excluded.last_at;
