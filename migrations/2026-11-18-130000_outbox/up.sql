CREATE TABLE outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id uuid NOT NULL DEFAULT gen_random_uuid(),
    channel text NOT NULL,
    key text NOT NULL,
    body jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    problem text
);
COMMENT ON TABLE outbox IS 'What must be told outside, written in the transaction of what it tells, and deleted when it was sent';
COMMENT ON COLUMN outbox.id IS 'Messages of one key are sent in this order';
COMMENT ON COLUMN outbox.message_id IS 'Stands in the message: one that comes twice has the same';
COMMENT ON COLUMN outbox.channel IS 'Which way it goes: kafka';
COMMENT ON COLUMN outbox.key IS 'What it is about, such as an order';
COMMENT ON COLUMN outbox.body IS 'What it says';
COMMENT ON COLUMN outbox.created_at IS 'When it happened';
COMMENT ON COLUMN outbox.problem IS 'Why it was given up; null: it waits';
CREATE INDEX outbox_waiting ON outbox (channel, id) WHERE problem IS NULL;
