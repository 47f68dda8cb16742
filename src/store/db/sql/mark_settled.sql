-- Marks tickets $1 as settled in exactly the versions $2: a cancel that came in between stays unsettled. Does not wait for
-- the disk: if the mark is lost, Redis is sent the change once more.
WITH at_once AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
changed AS (
  SELECT t.id, t.seat_version
  FROM tickets t JOIN unnest($1, $2) AS changed (id, version) ON t.id = changed.id
  WHERE t.seat_version = changed.version AND t.settled_at IS NULL
  ORDER BY t.id FOR NO KEY UPDATE OF t
)
UPDATE tickets SET settled_at = now(), status = CASE status WHEN 'PAID' THEN 'SYNCED' ELSE status END
FROM changed, at_once WHERE tickets.id = changed.id AND tickets.seat_version = changed.seat_version
