"""Each request comes from another address, as a proxy would say: wrong tokens are limited by address, and answered with 429 from then on,
while the check ignored_auth wants to see 401 for each operation."""
import random

import schemathesis


@schemathesis.hook
def before_call(context, case, kwargs):
    case.headers["X-Forwarded-For"] = f"10.{random.randrange(256)}.{random.randrange(256)}.{random.randrange(256)}"
