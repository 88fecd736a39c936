//! Which worker, and when: session affinity, load accounting, cost. A pure core and a thin handle. Knows nothing of sockets, JSON or tokenizers.
