-- Gives order $1, which somebody bought without signing in, to person $2, who may have $3 tickets of its event (null: any
-- number). Locks the tickets before the order, as a cancel does, so that it counts none that is cancelled at this moment.
WITH locked AS (
  SELECT id, status FROM tickets WHERE order_id = $1 ORDER BY id FOR NO KEY UPDATE
),
claimed AS (
  UPDATE orders SET user_id = $2 WHERE id = $1 AND user_id IS NULL AND EXISTS (SELECT FROM locked)
  RETURNING event_id
),
counted AS (
  INSERT INTO person_tickets AS has (user_id, event_id, living, most)
  SELECT $2, event_id, (SELECT count(*) FROM locked WHERE status <> 'CANCELLED'), $3 FROM claimed
  ON CONFLICT (user_id, event_id) DO UPDATE SET living = has.living + excluded.living, most = excluded.most
)
SELECT event_id FROM claimed
