use idempotent_tool::{Failure, Handler, Tx, idempotent_tool};

macro_rules! tool {
    (
        $vis:vis $name:ident, $operation:literal, $retention:expr, $limit:expr, $flag:literal,
        $context:ty, $argument:ident: $ty:ty, $state:ty, $output:ty, $authorize:path, $krate:path
    ) => {
        #[idempotent_tool(
            operation = $operation,
            retention = $retention,
            max_result = $limit,
            destructive = $flag,
            authorize = $authorize,
            crate = $krate,
        )]
        $vis fn $name(
            tx: $context,
            $argument: $ty,
            other: $ty,
            #[state] state: $state,
        ) -> $output {
            let _ = (tx, state, other);
            Ok($argument)
        }
    };
}

fn may(_: &idempotent_tool::Caller, _: &idempotent_tool::Asked<'_>) -> idempotent_tool::Access {
    idempotent_tool::Access::Allowed
}

tool!(pub echo, "echo:v1", "1d", 1024, false, &Tx, body: String, &u8, Result<String, Failure>, may, ::idempotent_tool);

/// A crate that re-exports ours writes the attribute by its own macro.
#[macro_use]
mod facade {
    pub use idempotent_tool;

    #[macro_export]
    macro_rules! facade_tool {
        ($name:ident) => {
            #[$crate::facade::idempotent_tool::idempotent_tool(
                operation = "facade:v1",
                crate = $crate::facade::idempotent_tool
            )]
            fn $name(
                _tx: &$crate::facade::idempotent_tool::Tx,
                #[serde(default)] count: u8,
            ) -> Result<u8, $crate::facade::idempotent_tool::Failure> {
                Ok(count)
            }
        };
    }
}

facade_tool!(by_facade);

fn is_tool<T: Handler>() {}

fn main() {
    is_tool::<echo>();
    is_tool::<by_facade>();
}
