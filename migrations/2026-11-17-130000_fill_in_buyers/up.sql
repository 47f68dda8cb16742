-- In a transaction of its own: it locks rows, and sales of other seats go on meanwhile.
UPDATE seats s SET place = o.place
FROM tickets t JOIN orders o ON o.id = t.order_id
WHERE t.event_id = s.event_id AND t.seat_number = s.number AND t.seat_version = s.version AND s.version > 0;
