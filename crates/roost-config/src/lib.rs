//! The option table: flags, environment names, defaults, validation, reference. Knows nothing of behaviour.
