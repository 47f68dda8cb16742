DROP TABLE outcomes;
