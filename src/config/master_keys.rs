use zeroize::Zeroizing;

use crate::error::Problem;
use crate::keyring::stored::MasterKeys;

/// `ATI_MASTER_KEY`, `ATI_MASTER_KEY_<ID>` and `ATI_MASTER_KEY_ACTIVE`.
pub fn read() -> Result<MasterKeys, Vec<Problem>> {
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let value = || value.into_string().ok().map(Zeroizing::new);
        MasterKeys::is_variable(&name).then(|| (name, value()))
    });
    MasterKeys::from_variables(variables)
}
