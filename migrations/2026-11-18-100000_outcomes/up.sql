CREATE TABLE outcomes (
    order_id uuid PRIMARY KEY,
    problem jsonb,
    same_as uuid,
    decided_at timestamptz NOT NULL DEFAULT now(),
    CHECK (problem IS NULL OR same_as IS NULL)
);
COMMENT ON TABLE outcomes IS 'What became of each order that was accepted first and written later, kept for an hour. One row an order: a sale and a refusal cannot both be written';
COMMENT ON COLUMN outcomes.order_id IS 'The order';
COMMENT ON COLUMN outcomes.problem IS 'Why it failed, as its buyer reads it; null: it was sold';
COMMENT ON COLUMN outcomes.same_as IS 'Order under which the same place had bought the same seats before';
COMMENT ON COLUMN outcomes.decided_at IS 'When it was decided';
CREATE INDEX outcomes_by_time ON outcomes (decided_at);

COMMENT ON COLUMN orders.id IS 'UUID version 7, or version 8 if the order was accepted before it was written or came from a page';
