SET 'table.local-time-zone' = 'UTC';

SET 'table.exec.sink.not-null-enforcer' = 'ERROR';

SET 'table.exec.sink.upsert-materialize' = 'NONE';

SET 'table.optimizer.agg-phase-strategy' = 'ONE_PHASE';

SET 'execution.checkpointing.interval' = '10000 ms';

CREATE TEMPORARY TABLE `orders/raw` (
  `amount` DECIMAL(12, 2),
  `customer_id` BIGINT,
  `order_id` BIGINT,
  `ordered_at` TIMESTAMP(3),
  `status` STRING,
  WATERMARK FOR `ordered_at` AS `ordered_at` - INTERVAL '15' MINUTE
) WITH (
  'connector' = 'kafka',
  'topic' = 'orders',
  'properties.bootstrap.servers' = 'localhost:9092',
  'properties.group.id' = 'streamform-shop-cluster-big_customers',
  'properties.isolation.level' = 'read_committed',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TEMPORARY VIEW `orders` AS
SELECT
  `amount`, `customer_id`, `order_id`, `ordered_at`, `status`
FROM `orders/raw`
WHERE (CURRENT_WATERMARK(`ordered_at`) IS NULL OR `ordered_at` >= CURRENT_WATERMARK(`ordered_at`));

CREATE TEMPORARY VIEW `clean_orders` AS
SELECT
  `order_id`,
  `customer_id`,
  `amount`,
  `status`,
  `ordered_at`
FROM `orders` AS `i`
WHERE (((`customer_id` IS NOT NULL) AND (`amount` IS NOT NULL)) AND (`status` <> 'test'));

CREATE TEMPORARY VIEW `customer_metrics` AS
SELECT
  `customer_id`,
  `sum(amount)` AS `total_spend`,
  `count(*)` AS `orders`
FROM (
  SELECT
    `customer_id`,
    SUM(`amount`) AS `sum(amount)`,
    COUNT(*) AS `count(*)`
  FROM `clean_orders` AS `i`
  GROUP BY `customer_id`
) AS `i`;

CREATE TEMPORARY VIEW `big_customers` AS
SELECT
  `customer_id`,
  `total_spend`
FROM `customer_metrics` AS `i`
WHERE (`total_spend` > CAST(1000 AS DECIMAL(20, 0)));

CREATE TEMPORARY TABLE `customer_metrics/sink` (
  `customer_id` BIGINT,
  `total_spend` DECIMAL(38, 2),
  `orders` BIGINT,
  PRIMARY KEY (`customer_id`) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = 'customer-metrics',
  'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json',
  'key.json.timestamp-format.standard' = 'ISO-8601',
  'key.json.encode.decimal-as-plain-number' = 'true',
  'value.format' = 'json',
  'value.json.timestamp-format.standard' = 'ISO-8601',
  'value.json.encode.decimal-as-plain-number' = 'true'
);

CREATE TEMPORARY TABLE `big_customers/sink` (
  `customer_id` BIGINT,
  `total_spend` DECIMAL(38, 2),
  PRIMARY KEY (`customer_id`) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = 'big-customers',
  'properties.bootstrap.servers' = 'localhost:9092',
  'key.format' = 'json',
  'key.json.timestamp-format.standard' = 'ISO-8601',
  'key.json.encode.decimal-as-plain-number' = 'true',
  'value.format' = 'json',
  'value.json.timestamp-format.standard' = 'ISO-8601',
  'value.json.encode.decimal-as-plain-number' = 'true'
);

SET 'pipeline.name' = 'streamform/shop/cluster/big_customers';

EXECUTE STATEMENT SET
BEGIN
INSERT INTO `customer_metrics/sink` (`customer_id`, `total_spend`, `orders`)
SELECT `customer_id`, `total_spend`, `orders`
FROM `customer_metrics`;
INSERT INTO `big_customers/sink` (`customer_id`, `total_spend`)
SELECT `customer_id`, `total_spend`
FROM `big_customers`;
END;
