// The measuring process: requests on one descriptor, messages on another (protocol.h), until the requests end.
#pragma once

namespace mcc::tools {

// Ends by itself when nobody can read its answers any more, whatever it is doing then. The exit code.
int run_worker(int in, int out);

}  // namespace mcc::tools
