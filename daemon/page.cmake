# Builds the page that gyrostatd serves: dashboards/page, bundled with its libraries from npm (package-lock.json says
# which, to the byte), into ${GYROSTAT_PAGE_DIR}/page.html.gz and page.csp. Without npm, or where npm reaches no
# registry, both hold the word "none", and the daemon serves a plain text that says what to install. Nothing else is
# fetched.

set(page_source ${PROJECT_SOURCE_DIR}/dashboards/page)
set(GYROSTAT_PAGE_DIR ${PROJECT_BINARY_DIR}/page)
find_program(GYROSTAT_NPM npm)
find_program(GYROSTAT_NODE NAMES node nodejs)

# node_modules are those of the lock file that the stamp names.
file(SHA256 ${page_source}/package-lock.json page_lock)
set(page_stamp "")
if(EXISTS ${GYROSTAT_PAGE_DIR}/installed)
  file(READ ${GYROSTAT_PAGE_DIR}/installed page_stamp)
endif()
if(NOT GYROSTAT_NPM OR NOT GYROSTAT_NODE)
  set(page_problem "npm or node is not installed")
elseif(NOT page_stamp STREQUAL page_lock)
  message(STATUS "The page: npm fetches its libraries")
  file(COPY ${page_source}/package.json ${page_source}/package-lock.json DESTINATION ${GYROSTAT_PAGE_DIR})
  execute_process(COMMAND ${GYROSTAT_NPM} ci --ignore-scripts --no-audit --no-fund --fetch-retries=1
    WORKING_DIRECTORY ${GYROSTAT_PAGE_DIR} TIMEOUT 180
    RESULT_VARIABLE page_result OUTPUT_QUIET ERROR_VARIABLE page_error)
  if(page_result EQUAL 0)
    file(WRITE ${GYROSTAT_PAGE_DIR}/installed ${page_lock})
  else()
    string(REGEX MATCH "npm (error|ERR!)[^\n]*" page_error "${page_error}")
    set(page_problem "npm ci failed (${page_result}) ${page_error}")
  endif()
endif()

set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page_source}/package-lock.json)
if(page_problem)
  message(WARNING "The live page is left out: ${page_problem}. gyrostatd will serve a plain text instead. Debian's "
    "packages for it: nodejs npm (deploy/install page); then configure again.")
  file(REMOVE ${GYROSTAT_PAGE_DIR}/installed)  # Whatever comes next is newer than the two words.
  file(CONFIGURE OUTPUT ${GYROSTAT_PAGE_DIR}/page.html.gz CONTENT "none")
  file(CONFIGURE OUTPUT ${GYROSTAT_PAGE_DIR}/page.csp CONTENT "none")
else()
  set(page_files api.js cards.js chart.js early.js heat.js index.html main.js model.js scale.js style.css words.js)
  list(TRANSFORM page_files PREPEND ${page_source}/src/)
  add_custom_command(OUTPUT ${GYROSTAT_PAGE_DIR}/page.html.gz ${GYROSTAT_PAGE_DIR}/page.csp VERBATIM
    DEPENDS ${page_files} ${page_source}/build.mjs ${GYROSTAT_PAGE_DIR}/installed
    COMMAND ${GYROSTAT_NODE} ${page_source}/build.mjs ${page_source}/src ${GYROSTAT_PAGE_DIR}
    COMMENT "Bundling the page")
endif()
