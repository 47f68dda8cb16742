-- What Redis has to know about every seat stands in its row, so that comparing the two costs the seats of an event, however
-- many tickets were ever sold.
ALTER TABLE seats ADD COLUMN place bigint;
COMMENT ON COLUMN seats.place IS 'Place in line of its last buyer; null: never sold';

UPDATE seats s SET place = o.place
FROM tickets t JOIN orders o ON o.id = t.order_id
WHERE t.event_id = s.event_id AND t.seat_number = s.number AND t.seat_version = s.version AND s.version > 0;
