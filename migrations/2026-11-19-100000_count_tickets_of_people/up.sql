CREATE TABLE person_tickets (
    user_id uuid NOT NULL REFERENCES users,
    event_id integer NOT NULL REFERENCES events,
    living integer NOT NULL CHECK (living >= 0),
    most integer,
    PRIMARY KEY (user_id, event_id),
    CONSTRAINT person_tickets_within_limit CHECK (living <= most)
);
COMMENT ON TABLE person_tickets IS 'How many tickets of an event a person has, over all their orders; raised by a sale, lowered by a cancel';
COMMENT ON COLUMN person_tickets.user_id IS 'Who bought them';
COMMENT ON COLUMN person_tickets.event_id IS 'Which event';
COMMENT ON COLUMN person_tickets.living IS 'Tickets that are not cancelled';
COMMENT ON COLUMN person_tickets.most IS 'How many one person could have when they last bought; null: any number';
INSERT INTO person_tickets (user_id, event_id, living)
SELECT orders.user_id, tickets.event_id, count(*) FILTER (WHERE tickets.status <> 'CANCELLED')
FROM tickets JOIN orders ON orders.id = tickets.order_id
WHERE orders.user_id IS NOT NULL
GROUP BY orders.user_id, tickets.event_id;
