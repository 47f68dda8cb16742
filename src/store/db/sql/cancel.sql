-- Takes back ticket $1 if it is not cancelled yet and the event's deadline has not passed, or $2: the seat is on sale
-- again, and the buyer gets the money back and has one ticket less. Where facts are wanted, it puts one into the outbox.
-- Locks the seat before the person, as a sale does.
WITH cancelled AS (
  UPDATE tickets t SET status = 'CANCELLED', seat_version = t.seat_version + 1, cancelled_at = now(),
                       settled_at = NULL
  FROM events e
  WHERE t.id = $1 AND t.status <> 'CANCELLED' AND e.id = t.event_id
    AND ($2 OR now() < coalesce(e.cancel_until, e.starts_at, 'infinity'))
  RETURNING t.id, t.order_id, t.event_id, t.seat_number, t.seat_version, t.price
),
freed AS (
  UPDATE seats s SET version = cancelled.seat_version FROM cancelled
  WHERE s.event_id = cancelled.event_id AND s.number = cancelled.seat_number
  RETURNING cancelled.id, cancelled.order_id, cancelled.price
),
refunded AS (
  UPDATE payments p SET refunded = p.refunded + freed.price FROM freed
  WHERE p.order_id = freed.order_id AND freed.price > 0
  RETURNING p.user_id, freed.price, freed.order_id, freed.id
),
credited AS (
  UPDATE users u SET balance = u.balance + refunded.price FROM refunded WHERE u.id = refunded.user_id
  RETURNING u.id, u.balance, refunded.price, refunded.order_id, refunded.id AS ticket_id
),
booked AS (
  INSERT INTO ledger (user_id, kind, amount, balance, order_id, ticket_id)
  SELECT id, 'REFUND', price, balance, order_id, ticket_id FROM credited
),
bought AS (
  -- Locked, so that whoever claims the order at this moment is known.
  SELECT orders.user_id, orders.event_id FROM freed JOIN orders ON orders.id = freed.order_id FOR SHARE OF orders
),
counted AS (
  -- Joined with what was credited, so that it locks the person first, as a sale does.
  UPDATE person_tickets has SET living = greatest(has.living - 1, 0)
  FROM bought LEFT JOIN credited ON credited.id = bought.user_id
  WHERE has.user_id = bought.user_id AND has.event_id = bought.event_id
),
told AS (
  INSERT INTO outbox (channel, key, body)
  SELECT 'kafka', cancelled.order_id, jsonb_build_object(
    'type', 'TICKET_CANCELLED', 'orderId', cancelled.order_id, 'eventId', cancelled.event_id, 'userId', orders.user_id,
    'ticketId', cancelled.id, 'seatNumber', cancelled.seat_number, 'refunded', cancelled.price)
  FROM cancelled JOIN orders ON orders.id = cancelled.order_id WHERE current_setting('zticket.facts', true) = 'on'
)
SELECT id FROM cancelled
