\set n :n + 1
\set seat :client_id * 1000000 + :n
INSERT INTO like_tickets (id, order_id, event_id, seat_number, seat_version, price, queue_token) VALUES (gen_random_uuid(), gen_random_uuid(), 1, :seat, 1, 0, gen_random_uuid());
