// The page itself: one packed document that is part of the program, its scripts and styles inside.
#pragma once

#include <optional>

#include "web/http.h"

namespace gyrostat::web {

// Whether the page was built in. It was not where npm was missing when the program was built.
bool HasPage();

// What a browser gets at "/": the page. Nothing for whoever does not ask for HTML, or cannot unpack it.
std::optional<Reply> Page(const Request& request);

}  // namespace gyrostat::web
