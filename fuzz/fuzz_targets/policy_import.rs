#![no_main]
//! See `causeway_fuzz::policy_import`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| causeway_fuzz::policy_import(data));
