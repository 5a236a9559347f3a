//! What to buy: Mlcached's model of cost and latency over a miss-ratio curve.
