# kiln_add_library: kernels that are built as part of a CMake build, with Ninja or Makefiles. It needs CMake 3.20.
#
#     execute_process(COMMAND python3 -m kiln cmake-dir OUTPUT_VARIABLE kiln OUTPUT_STRIP_TRAILING_WHITESPACE
#         COMMAND_ERROR_IS_FATAL ANY)
#     list(APPEND CMAKE_MODULE_PATH "${kiln}")
#     include(KilnAddLibrary)
#     kiln_add_library(my_kernels MANIFEST kernels/kernels.yaml)
#     target_link_libraries(my_program PRIVATE my_kernels)
#
# kiln_add_library(<name> MANIFEST <path of kernels.yaml> [TARGETS <target>...] [EXCLUDE_FROM_ALL])
#
# adds the library target <name>, which stands for the archive of all images, and the targets that find_package gives
# for an installed library: <library>::<library>, <library>::<target>, <library>::<target>_by_name and <library>::whole,
# where <library> is the word that kernels.yaml has for it. With TARGETS the library is built for these of its targets
# alone. The target <name>_kernels builds it; what links one of the others waits for that.
#
# KILN_PYTHON is the Python that has Kiln's requirements; by default the one that Kiln is installed in, else that of an
# activated virtual environment, else the first on PATH. What is built lies in kiln/<name> of the binary folder.
include_guard(GLOBAL)
if(CMAKE_VERSION VERSION_LESS 3.20)
    message(FATAL_ERROR "KilnAddLibrary needs CMake 3.20, and this is ${CMAKE_VERSION}")
endif()
cmake_policy(PUSH)
cmake_policy(VERSION 3.20)

function(kiln_add_library name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "EXCLUDE_FROM_ALL" "MANIFEST" "TARGETS")
    if(arg_UNPARSED_ARGUMENTS OR arg_KEYWORDS_MISSING_VALUES OR NOT arg_MANIFEST)
        message(FATAL_ERROR "kiln_add_library(<name> MANIFEST <path of kernels.yaml> [TARGETS <target>...]"
            " [EXCLUDE_FROM_ALL]) is what can be said; not understood: ${arg_UNPARSED_ARGUMENTS}"
            " ${arg_KEYWORDS_MISSING_VALUES}")
    endif()
    _kiln_find_python(python)
    get_filename_component(manifest "${arg_MANIFEST}" ABSOLUTE)
    get_filename_component(folder "${manifest}" DIRECTORY)
    set(build "${CMAKE_CURRENT_BINARY_DIR}/kiln/${name}")
    set(stamp "${build}.stamp")
    set(options "")
    if(DEFINED arg_TARGETS)
        string(REPLACE ";" "," targets "${arg_TARGETS}")
        set(options --targets "${targets}")
    endif()

    # What it says against kernels.yaml stands on standard error in its own words.
    file(MAKE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/kiln")
    execute_process(
        COMMAND ${python} -m kiln.project.cmake_info --manifest "${manifest}" --build-dir "${build}"
            --output "${build}.cmake" ${options}
        RESULT_VARIABLE code)
    if(NOT code EQUAL 0)
        message(FATAL_ERROR "kiln_add_library(${name}): see above what is wrong with ${arg_MANIFEST}")
    endif()
    if(TARGET ${name})
        message(FATAL_ERROR "kiln_add_library(${name}): there is a target of that name already")
    endif()
    file(STRINGS "${build}.cmake" library LIMIT_COUNT 1)
    string(REGEX REPLACE "^set\\(_kiln_library (.*)\\)$" "\\1" library "${library}")
    if(TARGET ${library}::${library})
        message(FATAL_ERROR "kiln_add_library(${name}): there is a library ${library} already, and two of that name"
            " cannot be in one program; give this one another name, by `library` in ${manifest}")
    endif()
    find_package(Threads REQUIRED)
    include("${build}.cmake")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${_kiln_manifests})

    # Kiln leaves files alone that would not change, so that nothing is compiled or linked again for them: they are
    # byproducts, which may be older than what they are made from.
    add_custom_command(
        OUTPUT "${stamp}"
        BYPRODUCTS ${_kiln_files}
        COMMAND ${python} -m kiln build --build-dir "${build}" ${options} --stamp "${stamp}" ${_kiln_tasks}
        DEPFILE "${stamp}.d"
        WORKING_DIRECTORY "${folder}"
        COMMENT "Building the kernels of ${library}"
        USES_TERMINAL
        VERBATIM)
    if(arg_EXCLUDE_FROM_ALL)
        add_custom_target(${name}_kernels DEPENDS "${stamp}")
    else()
        add_custom_target(${name}_kernels ALL DEPENDS "${stamp}")
    endif()
    foreach(target IN LISTS _kiln_targets)
        # Threads::Threads is a target of this folder alone, and these are for all.
        set_target_properties(${library}::${target} PROPERTIES
            INTERFACE_LINK_LIBRARIES "${CMAKE_THREAD_LIBS_INIT};${CMAKE_DL_LIBS}"
            IMPORTED_GLOBAL TRUE)
        add_dependencies(${library}::${target} ${name}_kernels)
        foreach(other IN ITEMS ${library}::${target}_by_name ${library}::whole)
            if(TARGET ${other})
                set_target_properties(${other} PROPERTIES IMPORTED_GLOBAL TRUE)
            endif()
        endforeach()
    endforeach()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE ${library}::${library})
endfunction()

# Sets `result` to the words that start a Python with this Kiln, and with what it needs.
function(_kiln_find_python result)
    get_filename_component(package "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/.." REALPATH)
    get_filename_component(root "${package}" DIRECTORY)
    set(folders "")
    if(root MATCHES "^(.*)/lib/python3[.0-9]*/site-packages$")
        list(APPEND folders "${CMAKE_MATCH_1}/bin")
    endif()
    if(NOT "$ENV{VIRTUAL_ENV}" STREQUAL "")
        list(APPEND folders "$ENV{VIRTUAL_ENV}/bin")
    endif()
    find_program(KILN_PYTHON NAMES python3 python HINTS ${folders} DOC "the Python that has what Kiln needs")
    set(path "${root}")
    if(NOT "$ENV{PYTHONPATH}" STREQUAL "")
        string(APPEND path ":$ENV{PYTHONPATH}")
    endif()
    set(words "${CMAKE_COMMAND}" -E env "PYTHONPATH=${path}" "${KILN_PYTHON}")
    execute_process(
        COMMAND ${words} -c "import kiln, doit, yaml, jinja2, elftools, msgpack"
        RESULT_VARIABLE code OUTPUT_QUIET ERROR_VARIABLE text)
    if(NOT code EQUAL 0)
        set(found "${KILN_PYTHON}")
        unset(KILN_PYTHON CACHE)
        message(FATAL_ERROR "KILN_PYTHON is ${found}, which cannot run the Kiln in ${package}:\n"
            "${text}\nname one that can: -DKILN_PYTHON=<path of python3>")
    endif()
    set(${result} "${words}" PARENT_SCOPE)
endfunction()

cmake_policy(POP)
