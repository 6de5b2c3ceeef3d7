#![no_main]
//! See `causeway_fuzz::redaction`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| causeway_fuzz::redaction(data));
