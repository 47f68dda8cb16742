-- orders_by_user_and_time answers the same questions.
DROP INDEX orders_by_user;
