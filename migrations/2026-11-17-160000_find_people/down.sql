DROP INDEX users_by_name;
