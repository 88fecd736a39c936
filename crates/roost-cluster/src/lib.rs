//! Who is there and what they hold: discovery backends, model cards and the event plane as one ordered update stream. Knows nothing of routing decisions or HTTP serving.
