DROP INDEX orders_by_user_and_time;
