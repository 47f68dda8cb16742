DROP TABLE operator_sessions;
