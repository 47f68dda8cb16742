DROP TABLE person_tickets;
