// @generated automatically by Diesel CLI.

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
    }
}

diesel::table! {
    orders (id) {
        id -> Uuid,
        event_id -> Int4,
        place -> Int8,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    seats (event_id, number) {
        event_id -> Int4,
        number -> Int4,
        label -> Text,
        price -> Int8,
        version -> Int8,
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

diesel::joinable!(seats -> events (event_id));
diesel::joinable!(tickets -> orders (order_id));

diesel::allow_tables_to_appear_in_same_query!(events, orders, seats, signing_keys, tickets,);
