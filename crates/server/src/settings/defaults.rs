//! A struct whose fields have their defaults beside them.

/// Declares a struct, and its `Default` from the values behind the fields.
macro_rules! settings {
    (
        $(#[$about:meta])*
        pub struct $name:ident { $($(#[$doc:meta])* pub $field:ident: $type:ty = $default:expr,)* }
    ) => {
        $(#[$about])*
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $($field: $default,)* }
            }
        }
    };
}
pub(super) use settings;
