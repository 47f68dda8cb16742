DROP TABLE refusals;
