//! What is true of sales and money in the database whatever happened. Tests check it at their end, `make chaos` all the
//! time.

/// A promise, and a query that finds what breaks it.
pub const PROMISES: &[(&str, &str)] = &[
    (
        "no order is sold after its buyer was told that it failed",
        "SELECT FROM outcomes JOIN orders ON orders.id = outcomes.order_id WHERE outcomes.problem IS NOT NULL",
    ),
    (
        "no seat is sold twice",
        "SELECT FROM tickets WHERE status <> 'CANCELLED' GROUP BY event_id, seat_number HAVING count(*) > 1",
    ),
    (
        "a seat is sold when its version is odd",
        "SELECT FROM seats s WHERE (s.version % 2 = 1) <> EXISTS (SELECT FROM tickets t
         WHERE t.event_id = s.event_id AND t.seat_number = s.number AND t.status <> 'CANCELLED')",
    ),
    (
        // Later by two or more where an audit raised it above what Redis had.
        "the last ticket of a seat has the version of the seat, or the seat's is later and says the same",
        "SELECT FROM seats s JOIN tickets t ON t.event_id = s.event_id AND t.seat_number = s.number
         GROUP BY s.event_id, s.number
         HAVING max(t.seat_version) > s.version OR (s.version - max(t.seat_version)) % 2 <> 0",
    ),
    (
        "no order is without a ticket",
        "SELECT FROM orders o WHERE NOT EXISTS (SELECT FROM tickets t WHERE t.order_id = o.id)",
    ),
    (
        "a balance is the sum of its ledger",
        "SELECT FROM users u LEFT JOIN ledger l ON l.user_id = u.id GROUP BY u.id
         HAVING u.balance <> coalesce(sum(l.amount), 0)",
    ),
    (
        "every line of the ledger follows from the one before",
        "SELECT FROM (SELECT balance, sum(amount) OVER (PARTITION BY user_id ORDER BY id) AS sum FROM ledger) AS l
         WHERE balance <> sum",
    ),
    (
        "what an order costs was paid once, by the person who ordered",
        "SELECT FROM (SELECT order_id, sum(price) AS total FROM tickets GROUP BY order_id) AS t
         JOIN orders o ON o.id = t.order_id LEFT JOIN payments p ON p.order_id = t.order_id
         WHERE t.total <> coalesce(p.amount, 0) OR p.user_id <> o.user_id OR t.total > 0 AND o.user_id IS NULL",
    ),
    (
        "the tickets that a person has of an event are counted",
        "SELECT FROM (SELECT o.user_id, o.event_id, count(*) FILTER (WHERE t.status <> 'CANCELLED') AS living
           FROM orders o JOIN tickets t ON t.order_id = o.id WHERE o.user_id IS NOT NULL GROUP BY 1, 2) AS has
         FULL JOIN person_tickets p USING (user_id, event_id)
         WHERE p.living IS DISTINCT FROM coalesce(has.living, 0)",
    ),
    (
        "what was cancelled was paid back",
        "SELECT FROM payments p WHERE p.refunded <>
         (SELECT coalesce(sum(price), 0) FROM tickets t WHERE t.order_id = p.order_id AND t.status = 'CANCELLED')",
    ),
    (
        "every payment was booked",
        "SELECT FROM payments p WHERE p.amount <>
         (SELECT coalesce(-sum(amount), 0) FROM ledger l WHERE l.order_id = p.order_id AND l.kind = 'PAYMENT')",
    ),
    (
        "payments and refunds are in the ledger",
        "SELECT FROM payments p WHERE p.amount - p.refunded <>
         (SELECT coalesce(-sum(amount), 0) FROM ledger l WHERE l.order_id = p.order_id AND l.user_id = p.user_id)",
    ),
];
