// @generated automatically by Diesel CLI.

diesel::table! {
    api_keys (id) {
        id -> Uuid,
        user_id -> Uuid,
        name -> Text,
        hash -> Bytea,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    audit_log (id) {
        id -> Int8,
        at -> Timestamptz,
        who -> Text,
        action -> Text,
        event_id -> Nullable<Int4>,
        before -> Nullable<Jsonb>,
        after -> Nullable<Jsonb>,
    }
}

diesel::table! {
    concerts (id) {
        id -> Int4,
        title -> Text,
        description -> Text,
        opens_at -> Timestamptz,
        closes_at -> Timestamptz,
        sold_out_at -> Nullable<Timestamptz>,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    controls (event_id) {
        event_id -> Int4,
        version -> Int8,
        state -> Text,
        reason -> Text,
        settings -> Jsonb,
        changed_at -> Timestamptz,
        was_paused -> Bool,
    }
}

diesel::table! {
    events (id) {
        id -> Int4,
        title -> Text,
        on_sale -> Bool,
        salt -> Uuid,
        ceiling -> Int8,
        tick -> Int8,
        undecided -> Int8,
        parked -> Nullable<Int8>,
        created_at -> Timestamptz,
        concert_id -> Nullable<Int4>,
        starts_at -> Nullable<Timestamptz>,
        cancel_until -> Nullable<Timestamptz>,
        one_place_per_person -> Bool,
        block_start -> Int8,
        block_end -> Int8,
        block_fetch -> Int4,
        block_used -> Bool,
        state -> Text,
        reason -> Text,
    }
}

diesel::table! {
    figures (event_id, at) {
        event_id -> Int4,
        at -> Timestamptz,
        waiting -> Int8,
        inside -> Int8,
        held -> Int8,
        sold -> Int8,
        entered -> Int8,
        admitted -> Int8,
        swept -> Int8,
    }
}

diesel::table! {
    ledger (id) {
        id -> Int8,
        user_id -> Uuid,
        kind -> Text,
        amount -> Int8,
        balance -> Int8,
        charge_key -> Nullable<Text>,
        order_id -> Nullable<Uuid>,
        ticket_id -> Nullable<Uuid>,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    operator_sessions (hash) {
        hash -> Bytea,
        key_hash -> Bytea,
        created_at -> Timestamptz,
        expires_at -> Timestamptz,
    }
}

diesel::table! {
    operators (id) {
        id -> Int4,
        name -> Text,
        role -> Text,
        key_hash -> Bytea,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    orders (id) {
        id -> Uuid,
        event_id -> Int4,
        place -> Int8,
        created_at -> Timestamptz,
        user_id -> Nullable<Uuid>,
    }
}

diesel::table! {
    outbox (id) {
        id -> Int8,
        message_id -> Uuid,
        channel -> Text,
        key -> Text,
        body -> Jsonb,
        created_at -> Timestamptz,
        problem -> Nullable<Text>,
    }
}

diesel::table! {
    outcomes (order_id) {
        order_id -> Uuid,
        problem -> Nullable<Jsonb>,
        same_as -> Nullable<Uuid>,
        decided_at -> Timestamptz,
    }
}

diesel::table! {
    payments (order_id) {
        order_id -> Uuid,
        user_id -> Uuid,
        amount -> Int8,
        refunded -> Int8,
        paid_at -> Timestamptz,
    }
}

diesel::table! {
    person_sessions (hash) {
        hash -> Bytea,
        id -> Uuid,
        user_id -> Uuid,
        key_id -> Nullable<Uuid>,
        browser -> Text,
        created_at -> Timestamptz,
        seen_at -> Timestamptz,
        expires_at -> Timestamptz,
    }
}

diesel::table! {
    person_tickets (user_id, event_id) {
        user_id -> Uuid,
        event_id -> Int4,
        living -> Int4,
        most -> Nullable<Int4>,
    }
}

diesel::table! {
    refusals (event_id, minute, reason) {
        event_id -> Int4,
        minute -> Timestamptz,
        reason -> Text,
        times -> Int8,
    }
}

diesel::table! {
    seats (event_id, number) {
        event_id -> Int4,
        number -> Int4,
        label -> Text,
        price -> Int8,
        version -> Int8,
        place -> Nullable<Int8>,
    }
}

diesel::table! {
    sections (event_id, number) {
        event_id -> Int4,
        number -> Int4,
        name -> Text,
        row_lengths -> Array<Nullable<Int4>>,
    }
}

diesel::table! {
    signing_keys (id) {
        id -> Int4,
        secret -> Bytea,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    tickets (id) {
        id -> Uuid,
        order_id -> Uuid,
        event_id -> Int4,
        seat_number -> Int4,
        seat_version -> Int8,
        price -> Int8,
        status -> Text,
        queue_token -> Uuid,
        sold_at -> Timestamptz,
        settled_at -> Nullable<Timestamptz>,
        cancelled_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    users (id) {
        id -> Uuid,
        name -> Text,
        key_hash -> Nullable<Bytea>,
        balance -> Int8,
        created_at -> Timestamptz,
    }
}

diesel::joinable!(api_keys -> users (user_id));
diesel::joinable!(audit_log -> events (event_id));
diesel::joinable!(controls -> events (event_id));
diesel::joinable!(events -> concerts (concert_id));
diesel::joinable!(figures -> events (event_id));
diesel::joinable!(ledger -> payments (order_id));
diesel::joinable!(ledger -> tickets (ticket_id));
diesel::joinable!(ledger -> users (user_id));
diesel::joinable!(orders -> users (user_id));
diesel::joinable!(payments -> orders (order_id));
diesel::joinable!(payments -> users (user_id));
diesel::joinable!(person_sessions -> api_keys (key_id));
diesel::joinable!(person_sessions -> users (user_id));
diesel::joinable!(person_tickets -> events (event_id));
diesel::joinable!(person_tickets -> users (user_id));
diesel::joinable!(refusals -> events (event_id));
diesel::joinable!(seats -> events (event_id));
diesel::joinable!(sections -> events (event_id));
diesel::joinable!(tickets -> orders (order_id));

diesel::allow_tables_to_appear_in_same_query!(
    api_keys, audit_log, concerts, controls, events, figures, ledger, operator_sessions, operators, orders, outbox, outcomes, payments, person_sessions, person_tickets, refusals, seats, sections, signing_keys, tickets, users,
);
