// Who may talk to the API: a page of the daemon itself, or a program; never a page from elsewhere in a browser.
//
// The daemon listens on loopback only and every caller there holds all roles, so the danger is the browser: any site
// can make it send requests here. It cannot forge Host and Origin, cannot name a header of its own in a plain request,
// and may not read the answer. So: Host is a loopback name (server.h), Origin is that Host, and what changes something
// is a POST of JSON with X-Gyrostat: 1. Ports may differ from the one listened on (ssh -L), but must agree. Pure.
#pragma once

#include <optional>

#include "web/http.h"

namespace gyrostat::web {

// The answer to a request that must not be carried out, or nothing.
std::optional<Reply> Refuse(const Request& request);

}  // namespace gyrostat::web
