DROP TABLE tickets;
DROP TABLE orders;
DROP TABLE seats;
DROP TABLE events;
DROP TABLE signing_keys;
