-- Orders and payments of a person, newest first. Without a lock: people buy while it is made.
CREATE INDEX CONCURRENTLY orders_by_user_and_time ON orders (user_id, created_at, id) WHERE user_id IS NOT NULL;
