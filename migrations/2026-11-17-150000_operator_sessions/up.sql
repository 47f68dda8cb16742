CREATE TABLE operator_sessions (
    hash bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    key_hash bytea NOT NULL CHECK (octet_length(key_hash) = 32),
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);
COMMENT ON TABLE operator_sessions IS 'Browsers in which an operator is signed in';
COMMENT ON COLUMN operator_sessions.hash IS 'BLAKE3 of the cookie; the cookie itself is not kept';
COMMENT ON COLUMN operator_sessions.key_hash IS 'BLAKE3 of the key they signed in with: a session ends when its key does';
COMMENT ON COLUMN operator_sessions.created_at IS 'When they signed in';
COMMENT ON COLUMN operator_sessions.expires_at IS 'When they have to sign in again';
CREATE INDEX operator_sessions_by_end ON operator_sessions (expires_at);
