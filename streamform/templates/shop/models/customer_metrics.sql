-- What each customer spent, refunds taken off.
SELECT
  customer_id,
  SUM(amount) AS total_spend,
  COUNT(*) AS orders
FROM ref('clean_orders')
GROUP BY customer_id
