-- Sells to many buyers in one statement, and so in one commit. One row a seat in each list.
-- Locks the seats that are unsold (their version is even), in order; adds up each party whose every seat is unsold; locks
-- the people who pay, in order; and for each buyer who can pay, and may have as many tickets of the event, writes the
-- order, the debit, the payment, the ledger entry, the seat versions and the tickets, and counts what the person has.
-- No seat, place or person may appear in two orders of one call. An order that was accepted first, or may still be (its
-- id is a UUID of version 8), notes its outcome: it is not sold if it was refused before, and if that happens at this
-- moment, the statement fails. Where facts are wanted, each sale puts one into the outbox.
WITH asked AS (
  SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
    AS asked (ticket_id, order_id, event_id, place, seat_number, token, user_id, seats, most)
),
locked AS (
  SELECT s.event_id, s.number, s.price, asked.ticket_id, asked.order_id, asked.place, asked.user_id,
         asked.seats, asked.most
  FROM seats s JOIN asked ON s.event_id = asked.event_id AND s.number = asked.seat_number
  WHERE s.version % 2 = 0
  ORDER BY s.event_id, s.number FOR UPDATE OF s
),
party AS (
  SELECT order_id, event_id, place, user_id, sum(price)::bigint AS total, max(seats)::integer AS seats,
         max(most) AS most
  FROM locked GROUP BY order_id, event_id, place, user_id HAVING count(*) = max(seats)
),
payer AS (
  SELECT u.id, u.balance FROM users u
  WHERE u.id = ANY (ARRAY(SELECT user_id FROM party WHERE total > 0))
  ORDER BY u.id FOR NO KEY UPDATE OF u
),
bill AS (
  SELECT party.*, payer.balance, coalesce(has.living, 0) AS owned
  FROM party LEFT JOIN payer ON payer.id = party.user_id
       LEFT JOIN person_tickets has ON has.user_id = party.user_id AND has.event_id = party.event_id
  WHERE get_byte(uuid_send(order_id), 6) / 16 <> 8
     OR NOT EXISTS (SELECT FROM outcomes WHERE outcomes.order_id = party.order_id)
),
ordered AS (
  INSERT INTO orders (id, event_id, place, user_id)
  SELECT order_id, event_id, place, user_id FROM bill
  WHERE (total = 0 OR balance >= total) AND (user_id IS NULL OR most IS NULL OR owned + seats <= most)
  ORDER BY event_id, place
  ON CONFLICT (event_id, place) DO NOTHING
  RETURNING id
),
decided AS (
  INSERT INTO outcomes (order_id) SELECT id FROM ordered WHERE get_byte(uuid_send(id), 6) / 16 = 8
),
counted AS (
  -- The table refuses what two servers together would sell above the limit.
  INSERT INTO person_tickets AS has (user_id, event_id, living, most)
  SELECT bill.user_id, bill.event_id, bill.seats, bill.most FROM bill JOIN ordered ON ordered.id = bill.order_id
  WHERE bill.user_id IS NOT NULL
  ORDER BY bill.user_id, bill.event_id
  ON CONFLICT (user_id, event_id) DO UPDATE SET living = has.living + excluded.living, most = excluded.most
),
debited AS (
  UPDATE users u SET balance = u.balance - bill.total
  FROM bill JOIN ordered ON ordered.id = bill.order_id
  WHERE u.id = bill.user_id AND bill.total > 0
  RETURNING u.id, u.balance, bill.order_id, bill.total
),
paid AS (
  INSERT INTO payments (order_id, user_id, amount) SELECT order_id, id, total FROM debited
),
booked AS (
  INSERT INTO ledger (user_id, kind, amount, balance, order_id)
  SELECT id, 'PAYMENT', -total, balance, order_id FROM debited
),
versioned AS (
  UPDATE seats s SET version = s.version + 1, place = locked.place
  FROM locked JOIN ordered ON ordered.id = locked.order_id
  WHERE s.event_id = locked.event_id AND s.number = locked.number
  RETURNING locked.ticket_id, s.version, s.price
),
told AS (
  INSERT INTO outbox (channel, key, body)
  SELECT 'kafka', bill.order_id, jsonb_build_object(
    'type', 'ORDER_PAID', 'orderId', bill.order_id, 'eventId', bill.event_id, 'userId', bill.user_id, 'total', bill.total,
    'tickets', (SELECT jsonb_agg(jsonb_build_object('ticketId', ticket_id, 'seatNumber', number, 'price', price)
                                 ORDER BY number) FROM locked WHERE locked.order_id = bill.order_id))
  FROM bill JOIN ordered ON ordered.id = bill.order_id WHERE current_setting('zticket.facts', true) = 'on'
),
sold AS (
  INSERT INTO tickets (id, order_id, event_id, seat_number, seat_version, price, queue_token)
  SELECT asked.ticket_id, asked.order_id, asked.event_id, asked.seat_number,
         versioned.version, versioned.price, asked.token
  FROM asked JOIN versioned ON versioned.ticket_id = asked.ticket_id
  RETURNING id, seat_version, price, sold_at
)
SELECT asked.ticket_id, sold.seat_version, sold.price, sold.sold_at, bill.total, bill.balance, bill.owned,
       CASE WHEN bill.user_id IS NOT NULL THEN bill.most END
FROM asked LEFT JOIN sold ON sold.id = asked.ticket_id LEFT JOIN bill ON bill.order_id = asked.order_id
