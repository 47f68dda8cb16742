DROP TABLE ledger;
DROP TABLE payments;
ALTER TABLE orders DROP COLUMN user_id;
DROP TABLE users;
DROP TRIGGER seats_price_is_fixed ON seats;
DROP FUNCTION seats_price_is_fixed();
DROP TABLE sections;
ALTER TABLE events
    DROP COLUMN concert_id,
    DROP COLUMN starts_at,
    DROP COLUMN cancel_until,
    DROP COLUMN one_place_per_person;
DROP TABLE concerts;
