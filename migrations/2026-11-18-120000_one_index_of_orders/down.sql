CREATE INDEX orders_by_user ON orders (user_id) WHERE user_id IS NOT NULL;
